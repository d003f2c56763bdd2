"""Back ends that turn requests into responses. Each module imports its own heavy library, and only when used."""
