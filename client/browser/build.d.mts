/** @param folder where the files are written; null: nowhere */
export function buildBrowserClient(
  folder: string | null,
): Promise<{ readonly script: string; readonly module: string }>;
