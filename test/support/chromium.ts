/** Where Chromium is. Apart from browser.ts, so that asking needs no browser's driver. */
import { existsSync } from 'node:fs';

export const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
export const hasChromium = existsSync(CHROMIUM);
