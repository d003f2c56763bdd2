"""Readers of labelled images:

DICOM, NIfTI, COCO, Pascal VOC, YOLO, masks, tables, class folders.
"""
