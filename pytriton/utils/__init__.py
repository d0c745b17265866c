"""Import paths that programs written for PyTriton use."""
