/**
 * Parses the part of YAML that compose.yaml uses: mappings and lists by indentation, lists in JSON, and texts without
 * quotes. @throws Error for a line of any other form
 */
export function plainYaml(text: string): unknown {
  const lines = text
    .split('\n')
    .filter((line) => !/^\s*(#.*)?$/.test(line))
    .map((line) => ({ depth: line.length - line.trimStart().length, text: line.trim() }));
  const [value, rest] = block(lines, 0);
  if (rest.length > 0) throw new Error(`not plain YAML: ${rest[0]?.text}`);
  return value;
}

interface Line {
  readonly depth: number;
  readonly text: string;
}

/** The lines of one block, and what follows it. */
function block(lines: readonly Line[], depth: number): [value: unknown, rest: readonly Line[]] {
  const isList = lines[0]?.text.startsWith('- ') === true;
  const list: unknown[] = [];
  const mapping: Record<string, unknown> = {};
  let rest = lines;
  for (let line = rest[0]; line !== undefined && line.depth >= depth; line = rest[0]) {
    if (line.depth > depth || line.text.startsWith('- ') !== isList) throw new Error(`not plain YAML: ${line.text}`);
    if (isList) {
      const item = { depth: depth + 2, text: line.text.slice(2) };
      const [value, after] = /^[\w-]+:( |$)/.test(item.text)
        ? block([item, ...rest.slice(1)], depth + 2)
        : [scalar(item.text), rest.slice(1)];
      list.push(value);
      rest = after;
      continue;
    }
    const [, key = '', value] = /^([\w-]+):(?: (.+))?$/.exec(line.text) ?? [];
    if (key === '' || key in mapping) throw new Error(`not plain YAML: ${line.text}`);
    rest = rest.slice(1);
    if (value !== undefined) mapping[key] = scalar(value);
    else if ((rest[0]?.depth ?? 0) > depth) [mapping[key], rest] = block(rest, depth + 2);
    else mapping[key] = null;
  }
  return [isList ? list : mapping, rest];
}

function scalar(text: string): unknown {
  if (text.startsWith('[')) return JSON.parse(text);
  if (text === 'true' || text === 'false') return text === 'true';
  if (/^["'{&*!|>%@`]|: | #|^[\d.]*\d[\d.]*$|^(null|~|yes|no|on|off)$/i.test(text))
    throw new Error(`not plain YAML: ${text}`);
  return text;
}
