"""Finding, checking, downloading and drawing images."""
