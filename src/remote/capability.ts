import { ApiError, UsageError } from '../base/errors.ts';

/** @param what continues "the service …": `has no trash` @throws UsageError if the service does not have it */
export function needed<T>(capability: T | null, what: string): T {
  if (capability === null) throw new UsageError(`the service ${what}`);
  return capability;
}

/**
 * The error of a request that needs a capability which the service lacks. It has the form of a refusal by the service (ApiError 405), so
 * that callers treat both alike: a change is parked (docs/glossary.md), and an optional request is skipped.
 */
export function missingCapability(request: string, what: string): ApiError {
  return new ApiError(405, request, `the service ${what}`);
}
