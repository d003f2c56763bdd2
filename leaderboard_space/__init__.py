"""Layer 3: the board, a Gradio app that also runs by itself as a Hugging Face Space."""
