"""Readers of labelled images.

Formats: DICOM, NIfTI, COCO, Pascal VOC, YOLO, masks, tables, class folders.
"""
