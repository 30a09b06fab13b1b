import { crc32, deflateSync } from 'node:zlib';

/** A picture for the demo account: an evening over hills, drawn here so that no binary file lies in the repository. */

const WIDTH = 640;
const HEIGHT = 400;

interface Colour {
  readonly red: number;
  readonly green: number;
  readonly blue: number;
}

/** The picture as a PNG file (RFC 2083: signature, IHDR, IDAT, IEND). Always the same bytes. */
export function demoPhoto(): Buffer {
  const rows = Buffer.alloc(HEIGHT * (1 + WIDTH * 3)); // each row begins with its filter, 0: none
  for (let y = 0; y < HEIGHT; y++) {
    for (let x = 0; x < WIDTH; x++) {
      const { red, green, blue } = colourAt(x / WIDTH, y / HEIGHT);
      rows.set([red, green, blue], y * (1 + WIDTH * 3) + 1 + x * 3);
    }
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(WIDTH, 0);
  header.writeUInt32BE(HEIGHT, 4);
  header.set([8, 2, 0, 0, 0], 8); // 8 bits per channel, RGB
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([
    signature,
    chunk('IHDR', header),
    chunk('IDAT', deflateSync(rows)),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

function colourAt(x: number, y: number): Colour {
  const hills = [
    { height: 0.62, wave: 3.1, depth: 0.06, colour: { red: 86, green: 62, blue: 110 } },
    { height: 0.74, wave: 4.7, depth: 0.05, colour: { red: 52, green: 40, blue: 78 } },
    { height: 0.87, wave: 2.3, depth: 0.04, colour: { red: 24, green: 20, blue: 44 } },
  ];
  const hill = hills.findLast(({ height, wave, depth }) => y > height + depth * Math.sin(x * wave * Math.PI + wave));
  if (hill !== undefined) return hill.colour;
  const fromSun = Math.hypot((x - 0.68) * 1.6, y - 0.5);
  if (fromSun < 0.07) return { red: 255, green: 236, blue: 190 };
  const glow = Math.max(0, 1 - fromSun);
  return {
    red: Math.min(255, Math.round(60 + 150 * y + 80 * glow)),
    green: Math.min(255, Math.round(50 + 70 * y + 90 * glow * glow)),
    blue: Math.min(255, Math.round(120 - 20 * y + 20 * glow)),
  };
}

function chunk(type: string, data: Buffer): Buffer {
  const typed = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(data.byteLength);
  const checksum = Buffer.alloc(4);
  checksum.writeUInt32BE(crc32(typed));
  return Buffer.concat([length, typed, checksum]);
}
