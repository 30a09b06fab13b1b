import { readFileSync } from 'node:fs';
import { UsageError } from '../../base/errors.ts';

export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Of temporary keys. */
  readonly sessionToken?: string | undefined;
}

/**
 * The keys from the environment, or from the file that AWS_SHARED_CREDENTIALS_FILE names: never from the command line,
 * which every user of the machine can read.
 * @throws UsageError
 */
export function s3Credentials(env: Readonly<Record<string, string | undefined>>): S3Credentials {
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey } = env;
  if (accessKeyId && secretAccessKey)
    return { accessKeyId, secretAccessKey, sessionToken: env.AWS_SESSION_TOKEN || undefined };
  const path = env.AWS_SHARED_CREDENTIALS_FILE;
  if (!path)
    throw new UsageError(
      '--objects needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE, in the environment',
    );
  return credentialsIn(textOf(path), env.AWS_PROFILE || 'default', path);
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`AWS_SHARED_CREDENTIALS_FILE: ${(error as Error).message}`, 2, { cause: error });
  }
}

/** The format of the file: sections of `name = value` lines. */
function credentialsIn(text: string, profile: string, path: string): S3Credentials {
  let section = '';
  const values = new Map<string, string>();
  for (const line of text.split(/\r?\n/)) {
    section = /^\s*\[\s*(.*?)\s*\]\s*$/.exec(line)?.[1] ?? section;
    const [, name, value] = /^\s*(aws_\w+)\s*=\s*(\S+)\s*$/.exec(line) ?? [];
    if (section === profile && name !== undefined && value !== undefined) values.set(name, value);
  }
  const [accessKeyId, secretAccessKey] = [values.get('aws_access_key_id'), values.get('aws_secret_access_key')];
  if (accessKeyId === undefined || secretAccessKey === undefined)
    throw new UsageError(
      `${path} has no aws_access_key_id and aws_secret_access_key in the section [${profile}]: add them`,
    );
  return { accessKeyId, secretAccessKey, sessionToken: values.get('aws_session_token') };
}
