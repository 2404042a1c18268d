/** Where the focus goes when something opens. */

/** Gives the focus to the first element of the first selector that finds one. */
export function focusFirst(root: HTMLElement | null, selectors: readonly string[]): void {
  for (const selector of selectors) {
    const found = root?.querySelector<HTMLElement>(selector);
    if (!found) continue;
    found.focus();
    return;
  }
}
