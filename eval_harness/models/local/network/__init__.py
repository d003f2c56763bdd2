"""Running a network of transformers: forward passes, caches, what its layers attend to, the logits it gives."""
