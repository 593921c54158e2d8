"""One agent process: it speaks with a model, runs its tools, hands work to delegates, and tells how it ended.

``main`` is the entry; ``loop`` the agent; ``link`` the thread that speaks with the supervisor; ``provider`` the model.
"""
