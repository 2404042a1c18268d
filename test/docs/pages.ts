/** The documentation as its tests see it: pages, their headings, links, code blocks and marked tables. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Every page for readers, as a path in the repository. */
export const PAGES: readonly string[] = [
  'README.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'CHANGELOG.md',
  ...readdirSync(join(ROOT, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];

export function readPage(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

export interface CodeBlock {
  /** What follows the three backticks. */
  readonly language: string;
  readonly text: string;
  /** Of its first line, from 1 on. */
  readonly line: number;
  /** The reason of a `<!-- not run: reason -->` in the line above; null where there is none. */
  readonly notRun: string | null;
}

/** The code blocks of a page, in their order. */
export function codeBlocks(page: string): CodeBlock[] {
  const blocks: CodeBlock[] = [];
  const lines = page.split('\n');
  for (let start = 0; start < lines.length; start += 1) {
    const [, language] = /^```(\w*)$/.exec(lines[start] ?? '') ?? [];
    if (language === undefined) continue;
    const end = lines.indexOf('```', start + 1);
    if (end < 0) throw new Error(`The code block of line ${start + 1} has no end.`);
    const [, notRun = null] = /^<!-- not run: (.+) -->$/.exec(lines[start - 1] ?? '') ?? [];
    blocks.push({ language, text: lines.slice(start + 1, end).join('\n'), line: start + 2, notRun });
    start = end;
  }
  return blocks;
}

/** A page without its code blocks. */
export function prose(page: string): string {
  return page.replace(/^```[\s\S]*?^```$/gm, '');
}

/** A stretch of prose without a full stop, colon or semicolon in it. */
export interface Sentence {
  readonly text: string;
  readonly words: number;
}

/** The sentences of a page's paragraphs and list items; code spans count as one word, and link targets as none. */
export function sentences(page: string): Sentence[] {
  const blocks = prose(page)
    .split(/\n\s*\n|\n(?=\s*(?:[-*#|<]|\d+\.))/)
    .map((block) => block.trim())
    .filter((block) => !/^[#|<]/.test(block));
  return blocks
    .map((block) => block.replace(/`[^`]*`/g, 'code').replace(/\[([^\]]*)\]\([^)]*\)/g, '$1'))
    .flatMap((block) => block.split(/[.!?:;](?:\*\*)?\s+/))
    .map((text) => ({ text, words: text.split(/\s+/).filter((word) => /\w/.test(word)).length }));
}

/** The texts of a page between backticks, outside of its code blocks. */
export function codeSpans(page: string): string[] {
  return [...prose(page).matchAll(/`([^`\n]+)`/g)].map(([, text = '']) => text);
}

/** The anchors that GitHub makes of a page's headings. */
export function anchors(page: string): Set<string> {
  const headings = [...prose(page).matchAll(/^#{1,6} (.+)$/gm)].map(([, text = '']) => text);
  return new Set(
    headings.map((text) =>
      text
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

/** The targets of a page's links and images. */
export function links(page: string): string[] {
  return [...prose(page).matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target);
}

/** The rows of the table between `<!-- NAME -->` and `<!-- end of NAME -->`, without its head; cells without padding. */
export function markedTable(page: string, name: string): string[][] {
  const from = page.indexOf(`<!-- ${name} -->`);
  const end = page.indexOf(`<!-- end of ${name} -->`);
  if (from < 0 || end < from) throw new Error(`The page has no table "${name}".`);
  return rows(page.slice(from, end));
}

/** The rows of the first table below a heading, likewise. */
export function tableBelow(page: string, heading: string): string[][] {
  const [, below] = `\n${page}`.split(`\n${heading}\n`);
  const table = /^\|.*(?:\n\|.*)*/m.exec(below ?? '')?.[0];
  if (table === undefined) throw new Error(`The page has no table below "${heading}".`);
  return rows(table);
}

function rows(text: string): string[][] {
  const lines = text.split('\n').filter((line) => line.startsWith('|'));
  return lines.slice(2).map((line) =>
    line
      .slice(1, line.lastIndexOf('|'))
      .split('|')
      .map((cell) => cell.trim()),
  );
}
