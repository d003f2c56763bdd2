"""What the board shows, one module per view: each turns a section and a selection into escaped HTML."""
