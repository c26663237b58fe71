"""Spark functions whose return type does not depend on their arguments."""

from __future__ import annotations

from collections.abc import Mapping

FUNCTIONS_BY_FIXED_TYPE: Mapping[str, str] = {
    "boolean": """
        and array_contains arrays_overlap boolean contains endswith equal_null exists forall ilike is_valid_utf8
        isnan isnotnull isnull like luhn_check map_contains_key or regexp regexp_like rlike startswith
        xpath_boolean every some any
        """,
    "tinyint": "tinyint bit_get getbit",
    "smallint": "smallint xpath_short",
    "int": """
        ascii array_size bit_count bit_length cardinality char_length character_length day dayofmonth dayofweek
        dayofyear find_in_set hash hour instr int json_array_length len length levenshtein locate minute month
        octet_length quarter regexp_count regexp_instr second size spark_partition_id unix_date weekday
        weekofyear xpath_int year
        """,
    "bigint": """
        array_position bigint bitmap_bit_position bitmap_bucket_number bitmap_count crc32 factorial
        hll_sketch_estimate input_file_block_length input_file_block_start monotonically_increasing_id
        timestampdiff to_unix_timestamp unix_micros unix_millis unix_seconds unix_timestamp width_bucket
        xpath_long xxhash64 grouping_id regr_count kll_sketch_get_n_bigint kll_sketch_get_n_double
        kll_sketch_get_n_float
        """,
    "float": "float xpath_float",
    "double": """
        acos acosh asin asinh atan atan2 atanh cbrt cos cosh cot csc degrees double e exp expm1 hypot ln log
        log10 log1p log2 months_between pi pow power radians rand random randn rint sec sign signum sin sinh
        sqrt tan tanh xpath_double xpath_number regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy std
        jaro_winkler_similarity kll_sketch_get_quantile_double
        """,
    "string": """
        array_join base64 bin btrim char chr collation concat_ws conv current_catalog current_database
        current_schema current_timezone current_user date_format dayname format_number format_string
        from_unixtime get_json_object hex initcap input_file_name java_method lcase lower ltrim make_valid_utf8
        mask md5 monthname parse_url printf quote randstr reflect regexp_extract regexp_replace regexp_substr
        repeat replace right rtrim schema_of_csv schema_of_json schema_of_xml session_user sha sha1 sha2 soundex
        space split_part string substring_index to_base32 to_char to_csv to_json to_varchar to_xml translate
        try_parse_url try_reflect try_url_decode kll_sketch_to_string_bigint kll_sketch_to_string_double
        kll_sketch_to_string_float try_validate_utf8 typeof ucase upper url_decode url_encode user uuid
        validate_utf8 version xpath_string
        """,
    "binary": """
        aes_decrypt aes_encrypt binary encode from_base32 hll_union hmac to_binary try_aes_decrypt try_to_binary
        unbase64 unhex count_min_sketch hll_sketch_agg hll_union_agg bitmap_or_agg bitmap_and_agg
        kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
        """,
    "date": """
        add_months curdate current_date date date_from_unix_date date_sub last_day make_date next_day to_date
        trunc try_to_date
        """,
    "timestamp": """
        current_timestamp date_trunc from_utc_timestamp make_timestamp_ltz now timestamp timestamp_micros
        timestamp_millis timestamp_seconds to_timestamp_ltz to_utc_timestamp try_make_timestamp_ltz
        """,
    "timestamp_ntz": "convert_timezone localtimestamp make_timestamp_ntz to_timestamp_ntz try_make_timestamp_ntz",
    "array<string>": "json_object_keys regexp_extract_all split xpath",
    "array<array<string>>": "sentences",
    "map<string,string>": "str_to_map",
}
"""Return type -> names of functions, separated by spaces. ``node_types`` has the functions with nodes of their own."""
