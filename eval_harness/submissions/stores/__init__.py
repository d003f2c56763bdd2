"""Where submissions go: a folder, or a dataset repository on the Hub."""
