-- What each store sells of what, day by day.
-- owner: sales@example.org
FOR t IN TIMESERIES('2000-11-01', '2000-12-31')
LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT OVERWRITE store_sales PARTITION (day = partition_day)
SELECT
  ss_store_sk AS store,
  ss_item_sk AS product,
  COUNT(*) AS nb_sales,
  SUM(ss_quantity) AS pieces,
  SUM(ss_net_paid) AS revenue
FROM tickets
WHERE tickets.day = partition_day
GROUP BY ss_store_sk, ss_item_sk
