"""HDPO's two channels as somebody outside groupwise would add them: accuracy, and economy beside it."""

from __future__ import annotations

from economy.channel_loss import ChannelLoss

__all__ = ["ChannelLoss"]
