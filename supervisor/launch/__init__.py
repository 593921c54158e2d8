"""Where an agent process comes from: one seam, two ways (a fork from a zygote, a fresh interpreter)."""
