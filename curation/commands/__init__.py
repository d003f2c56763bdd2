"""The commands `medprobe curate ...`, by stage. Each imports what it needs when it runs, so that `medprobe --help` stays quick."""
