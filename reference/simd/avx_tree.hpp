// The last steps of the tree on eight vectors at once. Included by the AVX2 and AVX-512 kernels inside their own namespace, since
// code of one level must never be shared with another.

// rows[r] holds eight lanes, (i, i+8) done. (i, i+4), (i, i+2), (i, i+1) by moving the lanes of several rows beside each other.
inline void finish(const __m256* rows, float* sums) {
  __m256 quads[4];  // {row r, row r + 4}, four lanes each
  for (int r = 0; r < 4; ++r) {
    quads[r] = _mm256_add_ps(_mm256_permute2f128_ps(rows[r], rows[r + 4], 0x20),
                             _mm256_permute2f128_ps(rows[r], rows[r + 4], 0x31));
  }
  __m256 pairs[2];
  for (int r = 0; r < 2; ++r) {
    const __m256d even = _mm256_castps_pd(quads[2 * r]);
    const __m256d odd = _mm256_castps_pd(quads[2 * r + 1]);
    pairs[r] =
        _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(even, odd)), _mm256_castpd_ps(_mm256_unpackhi_pd(even, odd)));
  }
  _mm256_storeu_ps(
      sums, _mm256_add_ps(_mm256_shuffle_ps(pairs[0], pairs[1], 0x88), _mm256_shuffle_ps(pairs[0], pairs[1], 0xDD)));
}
