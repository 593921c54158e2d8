"""Embedded model providers: OpenAI-compatible servers that need no key and no network, each in its own process.

The synthetic one answers by script and by counting; the local one answers with a small real model. Both share the
server, the plans and the directives; they differ in who writes the text.
"""
