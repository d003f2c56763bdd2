"""Make DICOM files of known pixels and elements."""

import numpy as np
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian


def make_dicom(values=None, bits=16, **elements):
    """Make a dataset of these elements; `values` (rows, columns) become unsigned pixels."""
    data = FileDataset(None, {}, file_meta=FileMetaDataset(), preamble=b"\0" * 128)
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    set_elements(data, elements)
    if values is not None:
        interpretation = elements.get("PhotometricInterpretation", "MONOCHROME2")
        data.set_pixel_data(values.round().astype(np.uint16), interpretation, bits, generate_instance_uid=False)
    return data


def set_elements(data, elements):
    """Set elements by keyword; None deletes."""
    for keyword, value in elements.items():
        if value is None:
            delattr(data, keyword)
        else:
            setattr(data, keyword, value)
