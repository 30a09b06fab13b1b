import type { Answer, OpContext } from '../kernel/binding.ts';

/** Applies `next` to the answer of `first`: synchronously for a value, later for a promise. */
export function after<T, R>(first: Answer<T>, next: (value: T) => Answer<R>): Answer<R> {
  return first instanceof Promise ? first.then(next) : next(first);
}

/** As `after`, for the first wait of a request: `next` runs as a part of the same request. */
export function resumed<T, R>(first: Answer<T>, ctx: OpContext, next: (value: T) => Answer<R>): Answer<R> {
  if (!(first instanceof Promise)) return next(first);
  return first.then((value) => (ctx.during === undefined ? next(value) : ctx.during(() => next(value))));
}

/** Runs `act`, then `cleanup`, whether `act` succeeds or fails. */
export function lastly<T>(act: () => Answer<T>, cleanup: () => void): Answer<T> {
  let answer: Answer<T>;
  try {
    answer = act();
  } catch (error) {
    cleanup();
    throw error;
  }
  if (answer instanceof Promise) return answer.finally(cleanup);
  cleanup();
  return answer;
}
