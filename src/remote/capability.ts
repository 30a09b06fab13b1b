import { ApiError, UsageError } from '../base/errors.ts';

/** @param what continues "the service …": `has no trash` @throws UsageError if the service does not have it */
export function needed<T>(capability: T | null, what: string): T {
  if (capability === null) throw new UsageError(`the service ${what}`);
  return capability;
}

/**
 * The refusal of a request for which the service has no capability, in the form of its own refusals: a change is parked, and a
 * caller that can do without the request goes on.
 */
export function missingCapability(request: string, what: string): ApiError {
  return new ApiError(405, request, `the service ${what}`);
}
