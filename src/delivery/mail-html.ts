/** What mails as HTML have in common: they are at home on light and on dark grounds, and do without their pictures. */
import { PICTURE_COLORS, PICTURE_WIDTH } from './picture.ts';

/** Programs that know the color scheme of their reader take these; others darken light mails by themselves. */
const STYLE = `:root{color-scheme:light dark}
@media(prefers-color-scheme:dark){body{background:#12181c!important;color:#e4eaee!important}.m{color:#a3b1ba!important}a{color:#5fc4d8!important}.c{border-color:#2c373e!important}}`;
const MUTED = 'color:#54636d';
/** Attributes of a paragraph of less important text. */
export const SMALL = `class="m" style="margin:2px 0 0;font-size:13px;${MUTED}"`;
/** Attributes of less important text within a line. */
export const QUIET = `class="m" style="${MUTED}"`;
export const SECTION = 'class="c" style="margin:16px 0 0;padding:14px 0 0;border-top:1px solid #dde3e7"';

/** A whole mail. @param title a text @param content HTML */
export function mailPage(title: string, content: string): string {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"><style>${STYLE}</style></head>
<body style="margin:0;padding:20px 16px;font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:15px;line-height:1.45;color:#101b22">
<div style="max-width:${PICTURE_WIDTH}px;margin:0 auto">
<h1 style="margin:0;font-size:20px">${escaped(title)}</h1>
${content}
</div></body></html>
`;
}

/** @param alt what the picture says, in words */
export function pictureHtml(id: string, alt: string): string {
  return `<img src="cid:${id}" width="${PICTURE_WIDTH}" alt="${escaped(alt)}" style="display:block;width:100%;max-width:${PICTURE_WIDTH}px;height:auto;margin:10px 0 0;border:0;font-size:12px">`;
}

/** What an ink of a picture stands for. */
export function inkHtml(ink: keyof typeof PICTURE_COLORS, text: string): string {
  return `<span style="white-space:nowrap"><span style="color:${PICTURE_COLORS[ink]}">&#9632;</span> ${text}</span>`;
}

/** @param text HTML of what is linked */
export function linkHtml(url: string, text: string): string {
  return `<a style="color:#0a6c80" href="${escaped(url)}">${text}</a>`;
}

/** Names are what applications send: nothing of them is markup. */
export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
