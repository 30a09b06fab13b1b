/*
 * crc32 as in zlib (reflected, polynomial 0xedb88320). On x86-64 by carry-less multiplication: V. Gopal et al., "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009. On arm64 by its CRC32 instructions, which have this polynomial. Exported only
 * if the CPU has the instructions; otherwise src/base/checksum.ts uses zlib's. test/base/checksum.test.ts compares the two.
 */
#include "fuse-kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* Bytes folded in one step: four lanes of 16 bytes, and four times that if the CPU has registers for it. */
#define STRIDE 64
#define WIDE_STRIDE (4 * STRIDE)

/* x^n modulo the polynomial, reflected, for folding over 16, 4 and 1 × 128 bits and for the reduction (ibid., section 4). */
static const uint64_t FOLD_16[2] = {0x011542778a, 0x01322d1430};
static const uint64_t FOLD_4[2] = {0x0154442bd4, 0x01c6e41596};
static const uint64_t FOLD_1[2] = {0x01751997d0, 0x00ccaa009e};
static const uint64_t FOLD_64[2] = {0x0163cd6124, 0};
static const uint64_t BARRETT[2] = {0x01db710641, 0x01f7011641};

static const uint32_t NIBBLES[16] = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};

#define FOLDS __attribute__((target("pclmul,sse4.1")))

FOLDS static __m128i folded(__m128i value, __m128i by, __m128i next) {
  __m128i low = _mm_clmulepi64_si128(value, by, 0x00), high = _mm_clmulepi64_si128(value, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

FOLDS static __m128i load(const void *from) { return _mm_loadu_si128((const __m128i *)from); }

/* The inverted crc of four lanes and of the bytes after them, a multiple of 16 bytes. */
FOLDS static uint32_t crc_of_lanes(const __m128i *lanes, const uint8_t *bytes, size_t length) {
  __m128i x0 = lanes[0], x1 = lanes[1], x2 = lanes[2], x3 = lanes[3], by = load(FOLD_4);
  for (; length >= STRIDE; bytes += STRIDE, length -= STRIDE) {
    x0 = folded(x0, by, load(bytes));
    x1 = folded(x1, by, load(bytes + 16));
    x2 = folded(x2, by, load(bytes + 32));
    x3 = folded(x3, by, load(bytes + 48));
  }
  by = load(FOLD_1);
  x0 = folded(folded(folded(x0, by, x1), by, x2), by, x3);
  for (; length > 0; bytes += 16, length -= 16) x0 = folded(x0, by, load(bytes));
  /* 128 bits to 64, to 32 and a rest, and the remainder of that. */
  const __m128i low32 = _mm_setr_epi32(~0, 0, ~0, 0);
  x0 = _mm_xor_si128(_mm_srli_si128(x0, 8), _mm_clmulepi64_si128(x0, by, 0x10));
  x0 = _mm_xor_si128(_mm_srli_si128(x0, 4), _mm_clmulepi64_si128(_mm_and_si128(x0, low32), load(FOLD_64), 0x00));
  by = load(BARRETT);
  __m128i quotient = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(x0, low32), by, 0x10), low32);
  return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x0, _mm_clmulepi64_si128(quotient, by, 0x00)), 1);
}

/* `length` is a multiple of 16, at least STRIDE. The inverted crc goes in and comes out. */
FOLDS static uint32_t crc_of_strides(uint32_t crc, const uint8_t *bytes, size_t length) {
  __m128i lanes[4] = {_mm_xor_si128(load(bytes), _mm_cvtsi32_si128((int)crc)), load(bytes + 16), load(bytes + 32), load(bytes + 48)};
  return crc_of_lanes(lanes, bytes + STRIDE, length - STRIDE);
}

#if (defined(__clang__) && __clang_major__ >= 9) || (!defined(__clang__) && __GNUC__ >= 9)
#define FOLDS_WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

FOLDS_WIDE static __m512i folded_wide(__m512i value, __m512i by, __m512i next) {
  __m512i low = _mm512_clmulepi64_epi128(value, by, 0x00), high = _mm512_clmulepi64_epi128(value, by, 0x11);
  return _mm512_xor_si512(_mm512_xor_si512(low, high), next);
}

FOLDS_WIDE static __m512i load_wide(const void *from) { return _mm512_loadu_si512(from); }

/* As crc_of_strides, of at least WIDE_STRIDE: each register is four lanes. */
FOLDS_WIDE static uint32_t crc_of_wide_strides(uint32_t crc, const uint8_t *bytes, size_t length) {
  __m512i x0 = _mm512_xor_si512(load_wide(bytes), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
  __m512i x1 = load_wide(bytes + 64), x2 = load_wide(bytes + 128), x3 = load_wide(bytes + 192);
  __m512i by = _mm512_broadcast_i32x4(load(FOLD_16));
  for (bytes += WIDE_STRIDE, length -= WIDE_STRIDE; length >= WIDE_STRIDE; bytes += WIDE_STRIDE, length -= WIDE_STRIDE) {
    x0 = folded_wide(x0, by, load_wide(bytes));
    x1 = folded_wide(x1, by, load_wide(bytes + 64));
    x2 = folded_wide(x2, by, load_wide(bytes + 128));
    x3 = folded_wide(x3, by, load_wide(bytes + 192));
  }
  by = _mm512_broadcast_i32x4(load(FOLD_4));
  __m128i lanes[4];
  _mm512_storeu_si512(lanes, folded_wide(folded_wide(folded_wide(x0, by, x1), by, x2), by, x3));
  return crc_of_lanes(lanes, bytes, length);
}

static bool is_wide(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"); }
#else
#define crc_of_wide_strides crc_of_strides
static bool is_wide(void) { return false; }
#endif

uint32_t checksum_of(uint32_t crc, const uint8_t *bytes, size_t length) {
  crc = ~crc;
  if (length >= STRIDE) {
    size_t whole = length & ~(size_t)15;
    crc = length >= WIDE_STRIDE && is_wide() ? crc_of_wide_strides(crc, bytes, whole) : crc_of_strides(crc, bytes, whole);
    bytes += whole;
    length -= whole;
  }
  for (; length > 0; bytes++, length--) {
    crc ^= *bytes;
    crc = crc >> 4 ^ NIBBLES[crc & 15];
    crc = crc >> 4 ^ NIBBLES[crc & 15];
  }
  return ~crc;
}

bool checksum_is_fast(void) { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }

#elif defined(__aarch64__) && defined(__GNUC__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <string.h>
#include <sys/auxv.h>

__attribute__((target("+crc"))) uint32_t checksum_of(uint32_t crc, const uint8_t *bytes, size_t length) {
  crc = ~crc;
  for (; length >= sizeof(uint64_t); bytes += sizeof(uint64_t), length -= sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    crc = __crc32d(crc, word);
  }
  for (; length > 0; bytes++, length--) crc = __crc32b(crc, *bytes);
  return ~crc;
}

bool checksum_is_fast(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

#else

bool checksum_is_fast(void) { return false; }

uint32_t checksum_of(uint32_t crc, const uint8_t *bytes, size_t length) {
  (void)bytes;
  (void)length;
  return crc;
}

#endif

/* crc32(bytes, crc of the preceding bytes) */
static napi_value checksum(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  size_t argc = 2, length;
  uint32_t before;
  void *data;
  TRY_NAPI(napi_get_cb_info(env, info, &argc, argv, NULL, NULL));
  TRY_NAPI(napi_get_typedarray_info(env, argv[0], NULL, &length, &data, NULL, NULL));
  TRY_NAPI(napi_get_value_uint32(env, argv[1], &before));
  return number_of(env, (double)checksum_of(before, data, length));
}

bool checksum_register(napi_env env, napi_value exports) {
  if (!checksum_is_fast()) return true;
  return define_function(env, exports, "crc32", checksum, NULL);
}
