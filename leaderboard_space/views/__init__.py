"""Views of the board, one module each: turn a section and a selection into escaped HTML."""
