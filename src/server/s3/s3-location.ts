import { UsageError } from '../../base/errors.ts';

/** A bucket, and the part of it that belongs to one installation. */
export interface S3Location {
  /** Of the endpoint; the bucket is the first segment of each path ("path style"), which every S3 store understands. */
  readonly origin: string;
  readonly bucket: string;
  /** Empty, or ends with `/`. */
  readonly prefix: string;
  readonly region: string;
  /** For messages. */
  readonly name: string;
}

/**
 * `s3://bucket/prefix?endpoint=https://s3.example.com&region=eu-1`. Without an endpoint that of AWS in the region.
 * @throws UsageError
 */
export function s3Location(text: string): S3Location {
  const wrong = (why: string): UsageError =>
    new UsageError(`--objects: ${why}; give s3://BUCKET?endpoint=https://HOST:PORT`);
  if (!text.startsWith('s3://') || !URL.canParse(text)) throw wrong('not an s3:// URL');
  const url = new URL(text);
  if (url.username !== '' || url.password !== '')
    throw wrong('keys do not belong into the URL, but into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY');
  for (const name of url.searchParams.keys())
    if (name !== 'endpoint' && name !== 'region') throw wrong(`unknown parameter ${JSON.stringify(name)}`);
  const region = url.searchParams.get('region') ?? DEFAULT_REGION;
  const endpoint = url.searchParams.get('endpoint') ?? `https://s3.${region}.amazonaws.com`;
  if (!BUCKET.test(url.hostname)) throw wrong('no valid bucket name');
  if (!/^[\w-]+$/.test(region)) throw wrong('no valid region');
  if (!/^https?:\/\/[^/?#@]+\/?$/.test(endpoint) || !URL.canParse(endpoint)) throw wrong('no valid endpoint');
  const folder = url.pathname.replace(/^\/+|\/+$/g, '');
  if (!/^[\w./-]*$/.test(folder)) throw wrong('a prefix has letters, digits and . _ - /');
  return {
    origin: new URL(endpoint).origin,
    bucket: url.hostname,
    prefix: folder === '' ? '' : `${folder}/`,
    region,
    name: `s3://${url.hostname}${folder === '' ? '' : `/${folder}`} at ${new URL(endpoint).host}`,
  };
}

const DEFAULT_REGION = 'us-east-1';
/** The naming rules of S3. */
const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
