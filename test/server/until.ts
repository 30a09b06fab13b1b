/** Waits for a condition; fails after `limitMs`. */
export async function until(condition: () => boolean | Promise<boolean>, limitMs = 10_000): Promise<void> {
  const startedMs = performance.now();
  while (!(await condition())) {
    if (performance.now() - startedMs > limitMs) throw new Error(`still not so after ${limitMs} ms: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
