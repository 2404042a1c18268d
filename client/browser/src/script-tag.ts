/**
 * The client as one script tag. `data-key` has the browser key, `data-page-views` and `data-clicks` track these, with the name of a type or
 * without. `window.tidemark` is the client.
 */
import { Tidemark } from './tidemark.ts';

const { dataset, src } = document.currentScript as HTMLScriptElement;
const { key = '', url = src, maxEvents = 10_000, pageViews, clicks } = dataset;
const tidemark = new Tidemark({ url, key, maxEvents: Number(maxEvents) });
Object.assign(window, { tidemark, Tidemark });
if (pageViews !== undefined) tidemark.pageViews(pageViews || undefined);
if (clicks !== undefined) tidemark.clicks(clicks || undefined);
