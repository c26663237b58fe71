-- What is sold of each product, day by day, in all stores together.
-- owner: products@example.org
FOR t IN TIMESERIES('2022-03-30', '2022-03-31')
LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT OVERWRITE products_sales PARTITION (day = partition_day)
SELECT
  product_id,
  SUM(nb_sales) AS nb_sales,
  SUM(revenue) AS revenue
FROM store_sales
WHERE store_sales.day = partition_day
GROUP BY product_id
