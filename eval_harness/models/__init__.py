"""Back ends that turn requests into responses. Heavy libraries are imported only when needed."""
