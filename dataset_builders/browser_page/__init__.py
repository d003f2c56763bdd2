"""A page in the browser on which people judge one item at a time: reviews, and reader studies."""
