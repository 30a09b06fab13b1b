import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { localTime } from '../../base/local-time.ts';
import { formatBytes } from '../../config/units.ts';
import type { Sample } from '../throughput.ts';
import { html, type View } from './html.ts';
import { ratesOf } from './rates.ts';

const SPANS = { '10 minutes': 600_000, 'a day': 86_400_000 } as const;
type Span = keyof typeof SPANS;
const HEIGHT_PX = 130;

/** Throughput over ten minutes or a day. Screen readers get the current rates from its label. */
export function ThroughputPlot({ samples }: { readonly samples: readonly Sample[] }): View {
  const [span, setSpan] = useState<Span>('10 minutes');
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const newest = samples.at(-1)?.atMs ?? 0;
  const data = ratesOf(samples, newest - SPANS[span]);
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const made = new uPlot(optionsFor(element.clientWidth), data, element);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    observer.observe(element);
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    const redraw = (): void => made.redraw();
    scheme.addEventListener('change', redraw);
    return () => {
      observer.disconnect();
      scheme.removeEventListener('change', redraw);
      made.destroy();
    };
  }, []);
  useEffect(() => {
    plot.current?.setScale('x', { min: (newest - SPANS[span]) / 1000, max: newest / 1000 });
    plot.current?.setData(data, false);
    plot.current?.setScale('x', { min: (newest - SPANS[span]) / 1000, max: newest / 1000 });
  }, [newest, span]);
  const now = `sent ${formatBytes(Math.round(data[1].at(-1) ?? 0))}/s, fetched ${formatBytes(Math.round(data[2].at(-1) ?? 0))}/s`;
  return html`<figure class="plot">
    <figcaption><span>Throughput: <span class="up">sent</span> and <span class="down">fetched</span></span>
      <span role="group" aria-label="Time span">${Object.keys(SPANS).map(
        (each) => html`<button type="button" key=${each} class="small" aria-pressed=${each === span}
          onClick=${() => setSpan(each as Span)}>${each}</button>`,
      )}</span></figcaption>
    <div ref=${box} role="img" aria-label=${`Throughput of ${span}; now ${now}`}></div>
  </figure>`;
}

function optionsFor(width: number): uPlot.Options {
  const colour = (name: string) => (): string => getComputedStyle(document.documentElement).getPropertyValue(name);
  const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  return {
    width: Math.max(1, width),
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: true, auto: false }, y: { range: (_plot, _min, max) => [0, Math.max(max, 1024)] } },
    axes: [
      { ...axis, size: 30, values: (_plot, splits) => splits.map(clockTime) },
      { ...axis, size: 70, values: (_plot, splits) => splits.map((value) => `${formatBytes(value)}/s`) },
    ],
    series: [
      {},
      { stroke: colour('--up'), width: 2, points: { show: false } },
      { stroke: colour('--down'), width: 2, points: { show: false } },
    ],
  };
}

function clockTime(seconds: number): string {
  return localTime(seconds * 1000).slice(11, 16);
}
