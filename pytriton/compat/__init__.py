"""What programs for other servers expect: clients of older protocols, and what calls handlers of TorchServe."""
