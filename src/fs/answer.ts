import type { Answer } from '../kernel/binding.ts';

/** `next` with the answer of `first`: at once when it is there, later when it is a promise. */
export function after<T, R>(first: Answer<T>, next: (value: T) => Answer<R>): Answer<R> {
  return first instanceof Promise ? first.then(next) : next(first);
}

/** Runs `act`, and `cleanup` when it has ended in whatever way. */
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
