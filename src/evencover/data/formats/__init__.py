"""Kinds of files, one module each: what is in them, as arrays or tables read piece by piece."""
