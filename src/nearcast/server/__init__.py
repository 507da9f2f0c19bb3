"""The live server: subscriptions, messages and events over HTTP."""
