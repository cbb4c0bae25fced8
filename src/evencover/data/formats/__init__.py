"""File formats, one module each, read as arrays or tables piece by piece."""
