"""Verify a pull request to a results store as soon as it is opened or changed, beside the job that
runs every ten minutes.

A server for a Hub webhook (Settings, Webhooks: watch the store, for "Repository" and "Discussions";
address: https://HOST/webhooks/verify). It runs where `medprobe[space]` is installed, on a server or
as app.py of a Space, with these variables:

    MEDPROBE_STORE    ORG/results
    MEDPROBE_DATA     the datasets that you vouch for, separated by spaces
    WEBHOOK_SECRET    the secret of the webhook; requests without it are refused
    HF_TOKEN          a token that may write to the store and do nothing else
"""

import os
import subprocess
import sys
import threading

import gradio
from huggingface_hub import WebhookPayload, WebhooksServer

STORE, SECRET = os.environ["MEDPROBE_STORE"], os.environ["WEBHOOK_SECRET"]
VOUCHED = [word for name in os.environ.get("MEDPROBE_DATA", "").split() for word in ("--data", name)]
due = threading.Event()

with gradio.Blocks() as page:
    gradio.Markdown(f"Verifies the pull requests to {STORE}.")
server = WebhooksServer(ui=page, webhook_secret=SECRET)


@server.add_webhook("/verify")
async def verify(payload: WebhookPayload) -> dict[str, bool]:
    """Answer at once; the work is done by the thread. Comments, which `verify` itself writes, are
    no reason to verify.
    """
    store = payload.repo.type == "dataset" and payload.repo.name == STORE
    wanted = store and not payload.event.scope.endswith(".comment") and payload.event.action in ("create", "update")
    if wanted:
        due.set()
    return {"due": wanted}


def work() -> None:
    """One run at a time; what arrives meanwhile is the next one's. A run that fails is repeated by
    the job of every ten minutes.
    """
    while due.wait():
        due.clear()
        command = [sys.executable, "-m", "medprobe", "verify", STORE, "--all", "--with-questions", *VOUCHED]
        subprocess.run(command, check=False)


threading.Thread(target=work, daemon=True).start()
server.launch(share=False)
