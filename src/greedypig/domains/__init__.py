"""Where g comes from: (model, input, baseline, target) → (objective, features)."""
