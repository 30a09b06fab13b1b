// Upgrades of a running mount in a row, under load with a model: no call fails or takes effect twice.
export const files = ['test/crash/upgrade.mount.test.ts', '-t', 'upgrades of a running mount'];
export const environment = (upgrades = '100') => ({ CFS_TEST_UPGRADES: upgrades });
