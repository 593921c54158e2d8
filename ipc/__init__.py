"""What every process of a run shares: messages, codec, endpoints, settings, paths and errors.

Nothing here imports another package of the project; every other package may import this one.
"""
