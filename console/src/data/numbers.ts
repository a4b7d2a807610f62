// Figures over many numbers.

/** The number that a share of all numbers does not exceed; `null` if there are none. */
export function percentileOf(values: number[], share: number): number | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]!;
}
