import type { Clock } from '../../base/clock.ts';
import type { ObjectStore } from '../object-store.ts';
import { s3Credentials } from './s3-credentials.ts';
import { s3Location } from './s3-location.ts';
import { S3Store } from './s3-store.ts';

/** The store of a `--objects` URL, with the keys of the environment. @throws UsageError */
export function openS3(text: string, env: Readonly<Record<string, string | undefined>>, clock: Clock): ObjectStore {
  return new S3Store({ location: s3Location(text), credentials: s3Credentials(env), clock });
}
