"""The commands of `medprobe curate`, grouped by stage; heavy imports happen inside each command."""
