"""The model behind one seam (``client``): each wire format is a module that implements it."""
