"""Layer 3: the board, a Gradio app that also runs by itself as a Hugging Face Space."""

import os

# A server answers many readers at once on few cores: threads inside every matrix product would only wait for each other
# (measured: 1 ms becomes 85 ms). Read when numpy is first imported, so this does nothing where that happened before.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
