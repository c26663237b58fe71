-- What each store sells of what, day by day.
-- owner: sales@example.org
FOR t IN TIMESERIES('2022-03-30', '2022-03-31'), store IN ('Detroit', 'Paris')
LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT OVERWRITE store_sales PARTITION (day = partition_day, store)
SELECT
  product_id,
  COUNT(*) AS nb_sales,
  SUM(price) AS revenue
FROM tickets
WHERE tickets.day = partition_day AND tickets.store = :store
GROUP BY product_id
